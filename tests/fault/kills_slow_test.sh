#!/bin/sh
# kill -9 at 300 moments, half of them during a save.
program="${DORMOUSE%/*}/test_fault"
[ -x "$program" ] || { echo "skipped: $program is not built"; exit 77; }
DORMOUSE_KILLS=300 exec "$program" --gtest_filter='*KilledAtAnyMoment*'
