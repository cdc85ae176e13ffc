#!/bin/sh
# The event records of the C++ test are those that a second, independent statement of the format gives.
folder=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 "$folder/events.py" check "$folder/fixtures/events.tfevents"
