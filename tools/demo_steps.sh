#!/bin/sh
# Prints the remaining steps of `make demo`, and about how long each takes. The times are for two
# cores and a fast network; compiling, making photographs and training depend on the number of
# cores.
#
# Variables, of the Makefile: PACKAGE (what marks the Python package as installed), DATA, SAMPLES
# (where the photographs go), DEMO_SAMPLES (how many), SETUP_SYSTEM (no: leave the system alone).
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cores=$(nproc 2>/dev/null || echo 2)
needs=$("$here/setup.sh" --needs)
total=0

# step TITLE SECONDS: one that is to come.
step() {
    total=$((total + $2))
    steps="$steps
  $(printf '%-42s about %d s' "$1" "$2")"
}

# shared SECONDS: of two cores, on all cores.
shared() {
    echo $((($1 * 2 + cores - 1) / cores))
}

steps=
case $needs in *system*)
    [ "$SETUP_SYSTEM" != yes ] || step 'install packages of the system' 60 ;;
esac
case $needs in *python*) step 'install PyTorch and others with pip' 60 ;; esac
[ -e "$PACKAGE" ] || step 'compile the library and the package' "$(shared 25)"
if [ "$DATA" = "$SAMPLES" ] && [ ! -e "$DATA/MANIFEST.json" ]; then
    count=$(echo "$DEMO_SAMPLES" | sed 's/\([0-9]\)\([0-9]\{3\}\)$/\1,\2/')
    step "download and cut $count photographs" "$((10 + $(shared $((DEMO_SAMPLES * 45 / 1200)))))"
fi
step 'train with both loaders' 50
echo "demo: about $(((total + 59) / 60)) min to go; where downloads are slow, longer$steps"
