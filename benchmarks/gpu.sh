#!/usr/bin/env bash
# The default fill and its rivals over all scenes, on a machine with one GPU, within a time limit:
#
#     HYDIFF_DATA=DATA OUT=FOLDER bash benchmarks/gpu.sh [SECONDS]
#
# DATA holds dev/*.npz.  Five processes share the GPU, each with scenes of its own, and write
# OUT/?/best.csv; a run that was cut off goes on where it stopped.  Nothing needs to be installed:
# hydiff is taken from src.  Then:  python benchmarks/gather.py OUT/?/best.csv
set -u
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
python="${PYTHON:-python3}"
end=$(( $(date +%s) + ${1:-540} ))

# One cell first: what is broken shows at once, before the time is spent.
"$python" -m hydiff bench best -o "$OUT/probe" --scene chikusei_36 --mask published-2 --sigma 0 \
    --method smooth --method auto > "$OUT/probe.log" 2>&1 || { cat "$OUT/probe.log"; exit 1; }

best() {  # FOLDER SCENE...
    local folder="$OUT/$1" scenes=() left; shift
    for scene in "$@"; do scenes+=(--scene "$scene"); done
    local rivals=(--method smooth --method auto --method hydiff-ei --method robust-ei
                  --method subspace-fill)
    run() {
        left=$(( end - $(date +%s) ))
        (( left > 20 )) || return
        timeout "$left" "$python" -m hydiff bench best -o "$folder" "${scenes[@]}" "$@" \
            --limit-minutes "$(awk "BEGIN { print ($left - 15) / 60 }")" >> "$folder.log" 2>&1 || tail -2 "$folder.log"
    }
    run --sigma 0 --method smooth --method auto --method harmonic --method biharmonic
    run --sigma 0 --method anchored
    run --sigma 0 --method hydiff-ei --mask published-2 --mask published-4 --mask stripes --mask blobs
    run --sigma 0.1 --sigma 0.3 --mask published-2 --mask stripes --mask blobs "${rivals[@]}"
    run --sigma 0.2 --sigma band --mask published-2 --mask blobs "${rivals[@]}"
}
best a indian_pines &
best b wdc10_144 enmap_potsdam_64x96 &
best c cave_toys_144 abu_urban-1_96 &
best d cave_feathers_144 paris_hyperion_72 chikusei_36 &
best e jasper_96 abu_airport-1_96 abu_airport-4_96 &
wait
wc -l "$OUT"/?/best.csv
