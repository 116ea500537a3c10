#!/bin/sh
# Print the five best classes of one photo, using only curl:
#
#   HOST=localhost:8000 client_examples/curl.sh photo.jpg
#
# To use a different ensemble than the demo's, set MODEL to its name and OUTPUT to the output with the scores.
#
# The body is a JSON header followed by the photo, so that Triton returns the scores with their class names. You can
# also send only the photo. The response then contains a JSON header and the 1000 scores as float32:
#
#   curl --data-binary @photo.jpg -H 'Inference-Header-Content-Length: 0' \
#        -H 'Content-Type: application/octet-stream' localhost:8000/v2/models/ensemble/infer -o answer.bin
set -eu
host=${HOST:-localhost:8000}
model=${MODEL:-ensemble}
output=${OUTPUT:-logits}
photo=${1:-$(dirname "$0")/images/flower.jpg}
[ -f "$photo" ] && [ -r "$photo" ] || { echo "curl.sh: cannot read $photo" >&2; exit 1; }

size=$(($(wc -c < "$photo")))
image='{"name": "image", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": '$((size + 4))'}}'
scores='{"name": "'$output'", "parameters": {"classification": 5, "binary_data": false}}'
header="{\"inputs\": [$image], \"outputs\": [$scores]}"

body() { # the header, the length of the photo as 4 bytes (little-endian), and the photo
    printf %s "$header"
    for shift in 0 8 16 24; do
        printf "\\$(printf %03o $((size >> shift & 255)))"
    done
    cat "$photo"
}

answer=$(body | curl --silent --show-error --data-binary @- \
    --header "Inference-Header-Content-Length: ${#header}" --header 'Content-Type: application/octet-stream' \
    "$host/v2/models/$model/infer") || { echo "curl.sh: check that pixprep serve is running on $host" >&2; exit 1; }
case $answer in
*'"data":['*) ;;
*) echo "curl.sh: $photo: $answer" >&2; exit 1 ;;
esac

echo "$photo"
printf '%s\n' "$answer" | sed -e 's/.*"data":\["//' -e 's/"\].*//' -e 's/","/\
/g' | while IFS=: read -r score class label; do
    LC_ALL=C printf '    %s  %9.4f  class %3s  %s\n' "$output" "$score" "$class" "$label"
done
