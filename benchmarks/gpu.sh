#!/usr/bin/env bash
# The tables of the paper and of the default fill, on a machine with one GPU, within a time limit:
#
#     HYDIFF_DATA=DATA OUT=FOLDER bash benchmarks/gpu.sh "PART..." [SECONDS]
#
# PART   alone    what is about time, one run after the other
#        scenes   tiles: a scene's own prior, three sizes; alone, too
#        rivals   the network that is fitted to one cube, by itself
#        core     the paper's method without noise, whole tables
#        paper    the paper's tables: peers, ablations, noise; rest: peers set again, a stand-in
#        noise    the paper's method and its parts with noise, three seeds: ei-ablation, noisy;
#                 330 s for the small scenes, then 260 s each for wdc10_144 and indian_pines
#        readings what the paper leaves open, transforms by one and by seven, the weights: 600 s
#        core-matrix  every cell of the paper's tables of the classical fills, hydiff-ei, ei,
#                 robust-ei and hir-diff; the first seed of alpha, transforms and epsilon before
#                 the two others.  Give it many times 540 s, until nothing is missing
#        peers    DDS2M, SHARE, Hyper-EI, R-DLRHyIn, DHP, LRS-PnP-DIP on their named cells
#        peers-large  DDS2M, SHARE, R-DLRHyIn, DHP, Hyper-EI at 144 × 144, two scenes, one mask
#        precision    Robust-EI in single precision, TF32 and bf16, three scenes
#        pictures what the figures show: fills of a square of Indian Pines by the methods named in
#                 PICTURED, and of trained networks; hydiff bench figures draws them (docs/bench.md)
#        left     cells of the peers that are left: 570 s
#        ablation trainings of the small network on other images, STEPS each: rows in OUT
#        seed     another training of the full network, seed 1, into OUT: 500 s
#        clock    the table of times alone, 144 × 144 × 128: 480 s
#        offline  Table VIII: two trainings of 1.5 minutes for each half of a scene, and fits: 450 s
#        diverse  offline training on 10 to 3000 squares of DATA/train, split by place: 540 s; rows
#                 in OUT/offline.csv, for `python benchmarks/offline.py gather`.  Once more on the
#                 same machine, it goes on from STATES (DATA/offline); OFFLINE names other lanes
#        prior    the default fill on masks that all bands share, with noise, and by the other
#                 budgets: 540 s; seven lanes of two cores, which leave two to `seed`
#        published    DDS2M by its own code (PUBLISHED is a checkout of it) on two small scenes
#        settings what is left of alpha, readings, transforms and precision, DHP with noise
#        tuned    the prior tuned on the cube beside one pass, eleven scenes, three masks: 400 s;
#                 rows in OUT/tuned.csv, to append to benchmarks/results/tuned.csv
#        denoiser the stand-in of HIR-Diff, trained on DATA/train, into OUT: 200 s
#        trials   what the default fill sees of its candidates
#
# One after the other; those joined by + side by side: "scenes paper+trials".
#
# DATA holds dev/*.npz.  Rows in benchmarks/results/bench, and in DATA/rows.tgz if an earlier run was
# cut off, are not made again.  Lanes, each a process with cells of its own, share the GPU and the
# cores.  OUT/rows.tgz holds their rows.  Nothing needs to be installed.  Then:
#
#     tar xzf OUT/rows.tgz -C ROWS && python benchmarks/gather.py ROWS/*/*.csv
#     HYDIFF_DATA=DATA hydiff bench all --missing -o benchmarks/results/bench
#
# Gathered rows are known to the next run.  Or keep OUT/rows.tgz as DATA/rows.tgz for it.
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

start() {
    # Processes that share a GPU take turns on it, unless NVIDIA's server lets their kernels overlap.
    export CUDA_MPS_PIPE_DIRECTORY="$(mktemp -d)" CUDA_MPS_LOG_DIRECTORY="$(mktemp -d)"
    if command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d; then
        trap 'echo quit | nvidia-cuda-mps-control' EXIT
        echo "kernels of all lanes overlap (MPS)"
    else
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    fi

    # One cell first: what is broken shows at once, before the time is spent.
    "$python" -m hydiff bench best -o "$rows/probe" --scene chikusei_36 --mask stripes --sigma 0 \
        --method smooth --method auto > "$OUT/log" 2>&1 || { cat "$OUT/log"; exit 1; }
    rm -rf "$rows/probe"
}

lane() {  # NAME: a folder of its own, in which all known rows lie
    lane="$1"
    mkdir -p "$rows/$lane"
    cp -n "$known"/*.csv "$rows/$lane"
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
    command -v taskset > /dev/null && (( $(nproc --all) > ${1#*-} )) && taskset -cp "$1" "$BASHPID" > /dev/null
}

small="chikusei_36 paris_hyperion_72 enmap_potsdam_64x96"  # on which the slowest peers are run
paper() {
    (   lane equivariant; bench ei-ablation; bench noisy --method hydiff-ei ) &
    (   lane own; for table in alpha transforms widths dead-columns emit use noiseless; do
            bench $table --method hydiff-ei
        done ) &
    (   lane images; for table in noiseless emit use; do bench $table --method dhp; done
        bench noisy $(with scene $small) --method dhp; bench noisy --method dhp ) &
    (   lane dds2m; for table in noiseless emit use noisy; do bench $table --method dds2m; done ) &
    (   lane share; for table in noiseless emit; do bench $table --method share; done
        bench noisy --sigma 0.1 --method share; bench noisy --method share ) &
    (   lane share-use; bench use --method share ) &
    (   lane r-dlrhyin; for table in noiseless emit use; do bench $table --method r-dlrhyin; done ) &
    (   lane r-dlrhyin-noisy; bench noisy --method r-dlrhyin --beside 1 ) &
    wait
}
equivariant="ei robust-ei hydiff-ei"
noise_of() {  # LANE SCENE...: the smallest first; rows of ei-ablation are those of noisy, too
    lane "$1"; shift
    for scene in "$@"; do
        bench ei-ablation --scene "$scene" $(with sigma 0.3 0.2 0.1) $(with method $equivariant)
    done
    for scene in "$@"; do bench noisy --scene "$scene" $(with method $equivariant); done
}
noise() {
    noise_of noise-a paris_hyperion_72 wdc10_144 &
    noise_of noise-b enmap_potsdam_64x96 indian_pines &
    noise_of noise-c abu_urban-1_96 &
    (   lane noise-cpu; bench noisy $(with method input bandmean smooth subspace-fill) --workers 4
        bench ei-ablation --method smooth --workers 4 ) &
    wait
}
classical="bandmean harmonic smooth rbf dineof halrtc exemplar"
settings_of() {  # LANE SCENES TABLE...: the first seed of all tables, then two more
    lane "$1"
    for seeds in 1 3; do
        for table in "${@:3}"; do bench $table $(with scene $2) --seeds $seeds; done
    done
}
core-matrix() {
    local narrow="paris_hyperion_72 abu_urban-1_96 enmap_potsdam_64x96" wide="wdc10_144 indian_pines"
    noise_of core-noise-a paris_hyperion_72 wdc10_144 &
    noise_of core-noise-b enmap_potsdam_64x96 indian_pines &
    noise_of core-noise-c abu_urban-1_96 &
    (   lane core-clean; bench ei-ablation --sigma 0 $(with method $equivariant)
        for table in noiseless emit; do bench $table --method hydiff-ei; done ) &
    settings_of core-weights-a "$narrow" epsilon alpha &
    settings_of core-weights-b "$wide" epsilon alpha &
    settings_of core-transforms-a "$narrow" transforms &
    settings_of core-transforms-b "$wide" transforms &
    (   lane core-stand-in; for table in noiseless noisy emit; do bench $table --method hir-diff; done ) &
    (   lane core-cpu; for table in noiseless emit; do bench $table $(with method input $classical) --workers 4; done
        bench noisy $(with method input bandmean smooth subspace-fill) --workers 4
        bench ei-ablation --method smooth --workers 4 ) &
    wait
}
readings() {
    (   lane readings-noise; bench readings --sigma 0.2 --method hydiff-ei
        bench readings --sigma 0.2 --method robust-ei ) &
    (   lane readings-clean; bench readings --sigma 0 --method hydiff-ei ) &
    (   lane transforms; bench transforms $(with scene paris_hyperion_72 abu_urban-1_96 enmap_potsdam_64x96)
        bench transforms --scene wdc10_144
        bench alpha $(with scene paris_hyperion_72 enmap_potsdam_64x96) ) &
    wait
}
peers() {  # those of which earlier rows are of other networks, and those that had no row
    (   lane dds2m-new; bench noiseless --method dds2m; bench noisy --method dds2m; bench emit --method dds2m ) &
    (   lane share-new; bench noisy $(with sigma 0.2 0.3) --method share; bench noiseless --method share
        bench noisy --method share; bench emit --method share ) &
    (   lane hyper-ei; bench ei-ablation --method hyper-ei ) &
    (   lane fewer; bench noisy --method dhp $(with scene paris_hyperion_72 enmap_potsdam_64x96 abu_urban-1_96)
        bench noiseless --method dhp $(with scene paris_hyperion_72 enmap_potsdam_64x96 abu_urban-1_96) ) &
    (   lane robust; for table in noisy noiseless emit; do bench $table --method r-dlrhyin --beside 1; done ) &
    (   lane iterations; for table in noisy noiseless emit; do bench $table --method dhp; done ) &
    (   lane cited; bench noiseless --method lrs-pnp-dip --beside 1 ) &
    wait
}
peers-large() {  # the paper's size; the smaller scene, of fewer bands, first
    local method one="--mask published-3 --seeds 1"
    for method in dds2m share r-dlrhyin dhp; do
        (   lane large-$method
            for scene in wdc10_144 indian_pines; do
                bench noiseless --scene $scene $one --method $method --beside 1
                bench noisy --scene $scene $one --sigma 0.2 --method $method --beside 1
            done ) &
    done
    (   lane large-hyper-ei
        for scene in wdc10_144 indian_pines; do
            bench ei-ablation --scene $scene $one $(with sigma 0 0.2) --method hyper-ei --beside 1
        done ) &
    wait
}
precision() {
    for scene in paris_hyperion_72 enmap_potsdam_64x96 abu_urban-1_96; do
        (   lane precision-$scene
            for seeds in 1 3; do bench precision --scene $scene --seeds $seeds; done ) &
    done
    wait
}
clock() {
    (   lane clock; bench time $(with method input $classical hydiff-ei dhp hir-diff dds2m r-dlrhyin share) )
}
offline() {  # trained on one half of a scene, tested on both; two networks for each
    (   lane offline; bench offline --offline-minutes 1.5 )
}
diverse() {  # CROPS SHARE-OF-THE-TIME RATE [NORM]: few crops are soon learned by heart, and leave the GPU to the others
    local left=$(( end - $(date +%s) - 60 )) crops share rate norm
    timeout "$left" "$python" benchmarks/offline.py beside --out "$OUT/offline.csv" >> "$rows/offline-beside.log" 2>&1 &
    while read -r crops share rate norm; do
        "$python" benchmarks/offline.py train --crops "$crops" --lr "$rate" --norm "${norm:-batch}" --states "${STATES:-$HYDIFF_DATA/offline}" \
            --minutes "$(awk "BEGIN { printf \"%.2f\", $share * $left / 60 }")" \
            --out "$OUT/offline.csv" >> "$rows/offline-$crops-$rate-$norm.log" 2>&1 &
    done <<< "${OFFLINE:-10 0.4 1e-3
50 0.6 1e-3
300 1 1e-3
3000 1 1e-3
300 0.4 1e-4}"
    wait
}
denoiser() {
    HYDIFF_TRAIN="$HYDIFF_DATA/train" "$python" benchmarks/denoiser.py --minutes 3 --channels 32 --batch 32 \
        --learned-from "Sentinel-2 images of 14 places (contains modified Copernicus Sentinel data 2015-2018)" \
        --output "$OUT/hir_diff.safetensors" >> "$rows/denoiser.log" 2>&1
}
core() {  # the paper's method without noise, each lane with scenes of its own
    (   lane core-a; bench noiseless --method hydiff-ei $(with scene indian_pines wdc10_144 jasper_96) ) &
    (   lane core-b; bench noiseless --method hydiff-ei $(with scene cave_toys_144 cave_feathers_144 chikusei_36 paris_hyperion_72 \
            enmap_potsdam_64x96 abu_urban-1_96 abu_airport-1_96 abu_airport-4_96) ) &
    (   lane core-c; bench epsilon; bench alpha --sigma 0 --method hydiff-ei ) &
    (   lane core-d; bench noiseless --method dhp ) &
    wait
}
rest() {  # of the paper's tables: peers set on hidden pixels, and a stand-in
    (   lane tuned; bench noiseless --tuned $(with method dds2m share r-dlrhyin dhp hir-diff) ) &
    (   lane stand-in; for table in noiseless noisy emit use; do bench $table --method hir-diff; done ) &
    wait
}
trials() {  # what the default fill sees of its candidates, for foresight.py
    local home="$HYDIFF_DATA/trials" each
    mkdir -p "$home"
    for each in 0 1; do
        "$python" benchmarks/trials.py "$home" --part "$each" --of 2 --processes 3 \
            --seconds $(( end - $(date +%s) - 30 )) >> "$rows/trials.log" 2>&1 &
    done
    wait
    (cd "$home" && find . -name '*.npz' -size +0 | tar czf "$OUT/trials.tgz" -T -)
}
pictures() {  # fills alone, each method by itself, in files of 15 MB at most; drawn where no GPU is
    local place="$rows/pictures" left=$(( end - $(date +%s) - 20 )) method
    mkdir -p "$place"/{filled,trained}/figures/cells
    for method in ${PICTURED:-hydiff-ei hir-diff dhp r-dlrhyin dds2m share}; do
        timeout "$left" "$python" -m hydiff bench figures -o "$place/filled" --scene indian_pines_72 \
            --method "$method" >> "$rows/pictures-$method.log" 2>&1 &
    done
    timeout "$left" "$python" -m hydiff bench figures -o "$place/trained" --scene indian_pines_right \
        --mask published-3 --method hydiff-ei >> "$rows/pictures-trained.log" 2>&1 &
    wait
    tar cz -C "$place" filled/figures/cells trained/figures/cells | split -b 15M - "$OUT/pictures.tgz."
    rm -r "$place"
}
scenes() {  # by tiles: the scene's own prior, and tiles of three sizes
    timeout 150 "$python" benchmarks/prior.py
    timeout 150 "$python" benchmarks/scene_gpu.py sizes
}

whole_pixels="stripes blobs frames slc-off published-3 published-1 published-2 published-4"
prior_of() {  # LANE CORES SCENES NOISY-SCENES: each line is one process, which keeps its GPU warm
    lane "$1"
    on_cores "$2"
    bench best $(with scene $3) --sigma 0 $(with mask $whole_pixels) --method auto
    [ -z "$4" ] || bench best $(with scene $4) $(with sigma 0.1 0.3 0.2 band) $(with mask blobs stripes published-3) --method auto
    bench best $(with scene $3) --sigma 0 $(with mask $whole_pixels) --method auto --budget fast
    bench best $(with scene $3) --sigma 0 $(with mask stripes blobs frames) --method auto --budget best
    bench best $(with scene $3) --sigma 0 $(with mask $whole_pixels) --method auto --budget best
}
prior() {
    prior_of prior-a 2-3 "indian_pines" "indian_pines" &
    prior_of prior-b 4-5 "cave_toys_144 paris_hyperion_72" "paris_hyperion_72" &
    prior_of prior-c 6-7 "cave_feathers_144 chikusei_36" "chikusei_36 cave_feathers_144" &
    prior_of prior-d 8-9 "abu_urban-1_96" "abu_urban-1_96" &
    prior_of prior-e 10-11 "abu_airport-1_96 wdc10_144" "" &
    prior_of prior-f 12-13 "abu_airport-4_96 enmap_potsdam_64x96" "enmap_potsdam_64x96" &
    prior_of prior-g 14-15 "jasper_96" "" &
    wait
}
published() {  # DDS2M by its own code beside ours; PUBLISHED is a checkout of it, seconds to minutes a cell
    local scene
    for scene in paris_hyperion_72 enmap_potsdam_64x96; do
        timeout $(( end - $(date +%s) - 10 )) "$python" benchmarks/published_dds2m.py --code "$PUBLISHED" \
            --scene $scene --mask published-3 --sigma 0 --sigma-0 0.1 --draws shared --range observed >> "$rows/published-$scene.log" 2>&1 &
    done
    wait
    cp benchmarks/results/published_dds2m.csv "$OUT"
}
left() {  # what is left of the peers
    local one="--beside 1"
    (   lane left-dds2m; bench noiseless --method dds2m $one ) &
    (   lane left-share; bench noisy --scene wdc10_144 --method share $one ) &
    (   lane left-robust-a; bench emit --scene enmap_potsdam_64x96 --method r-dlrhyin $one
        bench noiseless --scene paris_hyperion_72 --method r-dlrhyin $one ) &
    (   lane left-robust-b; bench noisy --scene indian_pines --method r-dlrhyin $one ) &
    (   lane left-cited; bench noiseless --scene enmap_potsdam_64x96 --method lrs-pnp-dip $one ) &
    wait
}
ablation_of() {  # VARIANT...: one after the other; little of the GPU, where a server can share it out
    local variant
    export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=15
    for variant in "$@"; do
        timeout $(( end - $(date +%s) - 5 )) "$python" benchmarks/prior_ablation.py --variant "$variant" \
            --steps "${STEPS:-1000}" >> "$rows/ablation.log" 2>&1
    done
}
ablation() {  # what the prior owes to its images and size
    ablation_of "12 places" "photographs" "drawn images" "12 places and drawn images" "attention" &
    ablation_of "3 places" "shuffled phases" "7 places" "twice the width" "half the width" &
    wait
}
seed() {  # another training of the full network, into OUT: 500 s beside other work
    timeout $(( end - $(date +%s) - 5 )) "$python" -m hydiff train-prior --data "$HYDIFF_DATA/train" \
        -o "$OUT/prior-full-1.safetensors" --size full --steps 17500 --seed 1 --set renew=50 --set compiled=true \
        >> "$rows/seed.log" 2>&1
}
settings() {  # what is left of readings, alpha, transforms and precision; then DHP with noise
    (   lane settings-a; bench readings; bench noisy $(with scene enmap_potsdam_64x96 abu_urban-1_96) --method dhp ) &
    (   lane settings-b; bench alpha; bench noisy --scene wdc10_144 --method dhp ) &
    (   lane settings-c; bench transforms; bench noisy --scene indian_pines --method dhp ) &
    (   lane settings-d; bench precision; bench noisy --sigma 0.3 --method share ) &
    wait
}
tuned() {
    timeout $(( end - $(date +%s) - 20 )) "$python" benchmarks/tuned.py --whole --size full >> "$rows/tuned.log" 2>&1
    cp benchmarks/results/tuned.csv "$OUT"
}
rivals() {
    (   lane e; bench best --sigma 0 --method anchored --beside 4 )
}

alone() {
    "$python" benchmarks/auto_time.py --budget fast normal --device cuda
    cp benchmarks/results/auto_time.csv "$OUT"
    (   lane alone; bench offline; bench time $(with method hydiff-ei dhp hir-diff dds2m share r-dlrhyin) )
}

for part in ${parts//+/ }; do
    declare -F "$part" > /dev/null || { echo "no part $part; see the list above in $0" >&2; exit 2; }
done
start
for part in $parts; do
    beside=()
    for one in ${part//+/ }; do "$one" & beside+=($!); done
    wait "${beside[@]}"
done
tar czf "$OUT/rows.tgz" -C "$rows" .
find "$rows" -name '*.log' -exec cat {} + >> "$OUT/log"
find "$rows" -name '*.log' -exec wc -l {} +
