#!/usr/bin/env bash
# The tables of the paper and of the default fill, on a machine with one GPU, within a time limit:
#
#     HYDIFF_DATA=DATA OUT=FOLDER bash benchmarks/gpu.sh [SECONDS]
#
# DATA holds dev/*.npz, and rows.tgz if an earlier run was cut off: what is in it is not run again.
# Lanes, each a process with cells of its own, share the GPU and the cores.  OUT/rows.tgz holds their
# rows.  Nothing needs to be installed.  Then:
#
#     tar xzf OUT/rows.tgz -C ROWS && python benchmarks/gather.py ROWS/*/*.csv
set -u
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python="${PYTHON:-python3}"
end=$(( $(date +%s) + ${1:-540} ))
rows="$(mktemp -d)"
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

default_fill() {  # LANE CORES SCENE...
    local lane="$1" scenes
    on_cores "$2"
    shift 2
    scenes="$(with scene "$@")"
    bench best $scenes --sigma 0 --method auto
    bench best $scenes --sigma 0.1 --sigma 0.3 $(with mask published-2 blobs) --method auto
    bench best $scenes --sigma 0 $(with mask published-2 published-4 slc-off blobs) --method anchored
    bench best $scenes --sigma band $(with mask published-2 blobs) --method auto
    bench best $scenes --sigma 0.2 $(with mask published-2 blobs) --method auto
    bench best $scenes --sigma 0 --method anchored
}
default_fill a 0-2 indian_pines chikusei_36 &
default_fill b 3-5 wdc10_144 enmap_potsdam_64x96 paris_hyperion_72 &
default_fill c 6-8 cave_toys_144 abu_urban-1_96 jasper_96 &
default_fill d 9-11 cave_feathers_144 abu_airport-1_96 abu_airport-4_96 &
(   lane=e; bench noiseless --seeds 1 --method hydiff-ei
    bench best --sigma 0 --method hydiff-ei; bench emit --seeds 1 --method hydiff-ei
    bench use --seeds 1 $(with method hydiff-ei dhp hir-diff) ) &
(   lane=f; bench best --sigma 0.1 --sigma 0.3 $(with mask published-2 blobs) $(with method hydiff-ei robust-ei)
    bench ei-ablation --sigma 0 --sigma 0.1 --sigma 0.3 $(with method ei robust-ei hydiff-ei)
    bench best --sigma 0.2 --sigma band $(with mask published-2 blobs) $(with method hydiff-ei robust-ei)
    bench noisy --method hydiff-ei ) &
(   lane=g; bench noiseless --method dds2m; bench noiseless --scene chikusei_36 --mask published-2 --method share
    bench transforms; bench noisy --sigma 0.1 $(with method dhp r-dlrhyin); bench epsilon
    bench emit $(with method dds2m dhp r-dlrhyin); bench noiseless --method share ) &
(   lane=h; on_cores 12-15; classical=(input bandmean harmonic smooth rbf dineof halrtc exemplar)
    bench best --workers 3 $(with method smooth harmonic biharmonic) --sigma 0
    bench best --workers 3 $(with sigma 0.1 0.2 0.3 band) $(with method smooth subspace-fill)
    bench noiseless --workers 3 $(with method "${classical[@]}" hir-diff)
    bench emit --workers 3 $(with method "${classical[@]}" hir-diff)
    bench use --workers 3 $(with method "${classical[@]}")
    bench noisy --workers 3 $(with method input bandmean smooth subspace-fill hir-diff)
    bench dead-columns --workers 3
    bench widths --workers 3
    bench alpha ) &
wait
tar czf "$OUT/rows.tgz" -C "$rows" $(cd "$rows" && ls -d *)
cat "$rows"/*.log >> "$OUT/log"
wc -l "$rows"/*/*.csv
