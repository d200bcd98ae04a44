#!/usr/bin/env bash
# The tables of the paper and of the default fill, on a machine with one GPU, within a time limit:
#
#     HYDIFF_DATA=DATA OUT=FOLDER bash benchmarks/gpu.sh "PART..." [SECONDS]
#
# PART   alone    what is about time, one run after the other
#        default  the default fill and what it is compared with
#        paper    the paper's tables: peers, ablations, noise
#
# DATA holds dev/*.npz.  Rows in benchmarks/results/bench, and in DATA/rows.tgz if an earlier run was
# cut off, are not made again.  Lanes, each a process with cells of its own, share the GPU and the
# cores.  OUT/rows.tgz holds their rows.  Nothing needs to be installed.  Then:
#
#     tar xzf OUT/rows.tgz -C ROWS && python benchmarks/gather.py ROWS/*/*.csv
set -u
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python="${PYTHON:-python3}"
parts="$1"
end=$(( $(date +%s) + ${2:-540} ))
rows="$(mktemp -d)"
known="$(mktemp -d)"
cp benchmarks/results/bench/*.csv "$known"
rm -f "$known"/*.table.csv
sed -i '/read from the log/d' "$known"/*.csv
if [ -e "$HYDIFF_DATA/rows.tgz" ]; then tar xzf "$HYDIFF_DATA/rows.tgz" -C "$rows"; fi

# Processes that share a GPU take turns on it, unless NVIDIA's server lets their kernels overlap.
export CUDA_MPS_PIPE_DIRECTORY="$(mktemp -d)" CUDA_MPS_LOG_DIRECTORY="$(mktemp -d)"
if command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d; then
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
    echo "kernels of all lanes overlap (MPS)"
else
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi

# One cell first: what is broken shows at once, before the time is spent.
"$python" -m hydiff bench best -o "$rows/probe" --scene chikusei_36 --mask published-2 --sigma 0 \
    --method smooth --method auto > "$OUT/log" 2>&1 || { cat "$OUT/log"; exit 1; }
rm -r "$rows/probe"

lane() {  # NAME: a folder of its own, in which all known rows lie
    lane="$1"
    mkdir -p "$rows/$lane"
    cp --update=none "$known"/*.csv "$rows/$lane"
}
bench() {  # TABLE [OPTION]...
    local left=$(( end - $(date +%s) ))
    (( left > 20 )) || return
    timeout "$left" "$python" -m hydiff bench "$1" -o "$rows/$lane" "${@:2}" \
        --limit-minutes "$(awk "BEGIN { print ($left - 15) / 60 }")" >> "$rows/$lane.log" 2>&1 \
        || tail -n 2 "$rows/$lane.log"
}
with() { local option="$1"; shift; printf -- "--$option %s " "$@"; }  # an option many times

on_cores() {  # FIRST-LAST: this lane, and whatever it starts, where there are so many
    command -v taskset > /dev/null && (( $(nproc) > ${1#*-} )) && taskset -cp "$1" "$BASHPID" > /dev/null
}

paper() {
    (   lane share; bench noiseless --method share; bench emit --method share ) &
    (   lane tuned-share; bench noiseless --scene chikusei_36 $(with mask published-2) --method share --tuned ) &
    (   lane noisy-share; bench noisy --sigma 0.1 --scene chikusei_36 --mask published-2 --method share
        bench emit --scene chikusei_36 --method share; bench noisy --sigma 0.1 --method share ) &
    (   lane dds2m; bench noisy --sigma 0.1 --method dds2m; bench emit --method dds2m ) &
    (   lane tuned-dds2m; bench noiseless --scene chikusei_36 --mask published-2 --method dds2m --tuned ) &
    (   lane tuned; bench noiseless --tuned $(with method dhp hir-diff); bench noiseless --method r-dlrhyin ) &
    (   lane images; bench emit --method dhp; bench noisy --sigma 0.1 --method dhp ) &
    (   lane ablations; bench epsilon; bench alpha; bench transforms; bench widths --method hydiff-ei ) &
    (   lane seeds; bench emit --method hydiff-ei; bench noiseless --method hydiff-ei; bench use --method hydiff-ei ) &
    (   lane equivariant; bench best $(with sigma 0.2 band) $(with mask published-2 blobs) $(with method hydiff-ei robust-ei)
        bench ei-ablation; bench dead-columns --method hydiff-ei
        bench best --sigma 0 --method hydiff-ei ) &
    (   lane stand-in; bench noiseless --method hir-diff; bench noisy --method hir-diff; bench emit --method hir-diff
        bench use --method hir-diff; bench noisy --method hydiff-ei ) &
    wait
}

default_fill() {  # LANE CORES SCENES [SCENES WITH NOISE]
    lane "$1"
    on_cores "$2"
    bench best $(with scene $3) --sigma 0 --method auto
    if [ -n "${4:-}" ]; then
        for sigma in 0.1 0.3 band 0.2; do
            bench best $(with scene $4) --sigma $sigma $(with mask published-2 blobs) --method auto
        done
    fi
}
default() {
    default_fill a 0-3 "indian_pines chikusei_36" "indian_pines chikusei_36" &
    default_fill b 4-7 "wdc10_144 enmap_potsdam_64x96 paris_hyperion_72" "enmap_potsdam_64x96 paris_hyperion_72" &
    default_fill c 8-11 "cave_toys_144 abu_urban-1_96 jasper_96" "abu_urban-1_96" &
    default_fill d 12-15 "cave_feathers_144 abu_airport-1_96 abu_airport-4_96" "wdc10_144" &
    (   lane e; bench best --sigma 0 --method anchored --beside 4 ) &
    wait
}

alone() {
    "$python" benchmarks/auto_time.py --budget fast normal --device cuda
    cp benchmarks/results/auto_time.csv "$OUT"
    (   lane alone; bench time $(with method hydiff-ei dhp hir-diff) )
}

for part in $parts; do "$part"; done
tar czf "$OUT/rows.tgz" -C "$rows" $(cd "$rows" && ls -d *)
cat "$rows"/*.log >> "$OUT/log"
wc -l "$rows"/*.log
