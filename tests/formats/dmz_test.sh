#!/bin/sh
# An archive of the first version: its layout is read for ever; its bytes come back, or the line says that the arithmetic has moved since.
. "$(dirname "$0")/../cli/support.sh"
here=$SOURCE/tests/formats
"$DORMOUSE" decompress "$here/exports/f32.dmexp" "$here/dmz/text.dmz" back --cpu scalar 2>err.txt
code=$?
if [ $code -eq 0 ]; then
  cmp "$here/0.1/text.txt" back || fail "the archive holds another text than it did"
else
  grep -q '^error: .*text.dmz was compressed with this model by a dormouse whose arithmetic rounds otherwise; use that version' err.txt ||
    fail "exit $code: $(cat err.txt)"
fi
expect 1 'error: .*text.dmz was compressed with another model' decompress "$here/exports/int8.dmexp" "$here/dmz/text.dmz" back --cpu scalar
finish
