#!/usr/bin/env bash
# Builds the libraries that a wheel contains, for one machine and an old C library, from the
# distribution's source packages: each with only what Headrace uses.
#
# Usage: libraries.sh WORK TARGET
#   WORK     the folder of make.sh: sources/ is read, TARGET/ is written
#   TARGET   x86_64 or aarch64
#
# All are static but libmicrohttpd and libmpg123, whose licence (LGPL) wants them replaceable: shared
# libraries beside the extension. TARGET/prefix holds headers, libraries and pkg-config files.
set -euo pipefail

work=$(realpath "$1") target=$2
prefix=$work/$target/prefix
build=$work/$target/build
sources=$work/sources
export CC=$work/$target/bin/cc AR=$work/$target/bin/ar RANLIB=$work/$target/bin/ranlib
export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig
# The hardening of Debian's packages: these libraries read bytes from outside.
flags="-O3 -fPIC -g0 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work=."
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include" "$build"

# source_of NAME: its unpacked source.
source_of() {
    local folders=("$sources/$1"-[0-9]*/)
    echo "${folders[0]%/}"
}

version_of() {
    local source
    source=$(source_of "$1")
    echo "${source##*-}"
}

# pc NAME VERSION LIBRARIES: a pkg-config file.
pc() {
    printf '%s\n' "Name: $1" "Description: $1" "Version: $2" "Libs: -L$prefix/lib $3" \
        "Cflags: -I$prefix/include" >"$prefix/lib/pkgconfig/$1.pc"
}

# objects NAME FLAGS FILE...: compiles files to libNAME.a.
objects() {
    local name=$1 object=() file
    local -a more
    read -ra more <<<"$2"
    shift 2
    mkdir -p "$build/$name"
    for file in "$@"; do
        # shellcheck disable=SC2086
        "$CC" $flags "${more[@]}" -c "$file" -o "$build/$name/$(basename "$file" .c).o"
        object+=("$build/$name/$(basename "$file" .c).o")
    done
    rm -f "$prefix/lib/lib$name.a"
    "$AR" rcs "$prefix/lib/lib$name.a" "${object[@]}"
}

# with_cmake NAME OPTION...
with_cmake() {
    local name=$1 cross=()
    shift
    [ "$target" = "$(uname -m)" ] ||
        cross=(-DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=$target")
    cmake -G Ninja -S "$(source_of "$name")" -B "$build/$name" "${cross[@]}" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE= "-DCMAKE_C_FLAGS=$flags -DNDEBUG" \
        "-DCMAKE_AR=$AR" "-DCMAKE_RANLIB=$RANLIB" "-DCMAKE_INSTALL_PREFIX=$prefix" \
        "-DCMAKE_INSTALL_LIBDIR=$prefix/lib" \
        "-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF \
        -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF \
        -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@"
    ninja -C "$build/$name" install
}

zlib() {
    local source
    source=$(source_of zlib)
    objects z "-DHAVE_UNISTD_H -DHAVE_STDARG_H -DHAVE_HIDDEN -D_LARGEFILE64_SOURCE" "$source"/*.c
    cp "$source/zlib.h" "$source/zconf.h" "$prefix/include"
    pc zlib "$(sed -n 's/^#define ZLIB_VERSION "\(.*\)"/\1/p' "$source/zlib.h")" -lz
}

xxhash() {
    objects xxhash '' "$(source_of xxhash)/xxhash.c"
    cp "$(source_of xxhash)/xxhash.h" "$prefix/include"
    pc libxxhash "$(version_of xxhash)" -lxxhash
}

libspng() {
    objects spng "-DSPNG_STATIC -I$prefix/include" "$(source_of libspng)/spng/spng.c"
    cp "$(source_of libspng)/spng/spng.h" "$prefix/include"
    pc spng "$(version_of libspng)" "-lspng -lz -lm"
}

libjpeg() {
    with_cmake libjpeg-turbo -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DREQUIRE_SIMD=ON
}

libwebp() {
    local none=() part
    for part in ANIM_UTILS CWEBP DWEBP GIF2WEBP IMG2WEBP VWEBP WEBPINFO WEBPMUX LIBWEBPMUX EXTRAS; do
        none+=("-DWEBP_BUILD_$part=OFF")
    done
    with_cmake libwebp "${none[@]}"
    pc libwebpdemux "$(version_of libwebp)" "-lwebpdemux -lwebp -lm -lpthread"
}

jansson() {
    with_cmake jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON
}

# Only tar: no compression, no XML, no encryption.
libarchive() {
    local none=() part
    for part in ZLIB BZip2 LZMA ZSTD LZ4 LZO LIBB2 LIBXML2 EXPAT PCREPOSIX LIBGCC CNG OPENSSL \
        MBEDTLS NETTLE TAR CPIO CAT XATTR ACL ICONV TEST; do
        none+=("-DENABLE_$part=OFF")
    done
    with_cmake libarchive "${none[@]}" -DENABLE_WERROR=OFF -DPOSIX_REGEX_LIB=NONE
    rm "$prefix"/lib/libarchive.so*
}

liburing() {
    # It is built in its own folder.
    rm -rf "$build/liburing"
    cp -a "$(source_of liburing)" "$build/liburing"
    (
        cd "$build/liburing"
        # With an optimisation: without one Zig first compiles a sanitizer.
        CFLAGS=-O2 ./configure --prefix="$prefix" --libdir="$prefix/lib" --includedir="$prefix/include" \
            --mandir="$build/man" --cc="$CC"
        make -C src ENABLE_SHARED=0 CFLAGS="$flags" install
        sed "s|@prefix@|$prefix|; s|@libdir@|$prefix/lib|; s|@includedir@|$prefix/include|
            s|@NAME@|liburing|; s|@VERSION@|$(version_of liburing)|" liburing.pc.in \
            >"$prefix/lib/pkgconfig/liburing.pc"
    )
}

libmicrohttpd() {
    mkdir -p "$build/libmicrohttpd"
    (
        cd "$build/libmicrohttpd"
        "$(source_of libmicrohttpd)/configure" --host="$target-linux-gnu" --prefix="$prefix" \
            --libdir="$prefix/lib" --disable-static --disable-doc --disable-examples \
            --disable-tools --disable-curl --disable-https --disable-bauth --disable-dauth \
            --disable-httpupgrade --disable-postprocessor --disable-nls \
            --enable-compile-hardening=no CFLAGS="$flags" LDFLAGS=-s
        make -C src/include install
        make -C src/microhttpd install-libLTLIBRARIES
    )
}

libogg() {
    with_cmake libogg -DINSTALL_DOCS=OFF
}

# The decoder alone.
libvorbis() {
    local source parts=() part
    source=$(source_of libvorbis)/lib
    for part in bitrate block codebook envelope floor0 floor1 info lookup lpc lsp mapping0 mdct psy \
        registry res0 sharedbook smallft synthesis analysis vorbisfile window; do
        parts+=("$source/$part.c")
    done
    objects vorbisfile "-fsigned-char -I$source -I$source/../include -I$prefix/include" "${parts[@]}"
    mkdir -p "$prefix/include/vorbis"
    cp "$source"/../include/vorbis/{codec,vorbisfile}.h "$prefix/include/vorbis"
    pc vorbisfile "$(version_of libvorbis)" "-lvorbisfile -logg -lm"
}

flac() {
    local none=() part
    for part in BUILD_CXXLIBS BUILD_PROGRAMS BUILD_EXAMPLES BUILD_DOCS INSTALL_MANPAGES WITH_OGG; do
        none+=("-D$part=OFF")
    done
    with_cmake flac "${none[@]}"
    pc flac "$(version_of flac)" "-lFLAC -lm"
}

mpg123() {
    local cpu=${target/_/-}
    mkdir -p "$build/mpg123"
    (
        cd "$build/mpg123"
        "$(source_of mpg123)/configure" --host="$target-linux-gnu" --prefix="$prefix" \
            --libdir="$prefix/lib" --disable-static --with-audio=dummy --with-cpu="$cpu" \
            CFLAGS="$flags" LDFLAGS=-Wl,-s
        make install-libLTLIBRARIES install-pkgconfigDATA \
            lib_LTLIBRARIES=src/libmpg123/libmpg123.la
        cp src/libmpg123/mpg123.h "$(source_of mpg123)/src/libmpg123/fmt123.h" "$prefix/include"
    )
}

# The order is that of their needs.
for library in zlib xxhash libspng libjpeg libwebp jansson libarchive liburing libmicrohttpd \
    libogg libvorbis flac mpg123; do
    if [ "$build/$library.done" -nt "${BASH_SOURCE[0]}" ]; then continue; fi
    echo "wheels: building $library for $target"
    # In the background: a failure in the middle of a function whose status is asked for does not end it.
    $library >"$build/$library.log" 2>&1 &
    wait $! || {
        tail -30 "$build/$library.log" >&2
        echo "wheels: $library cannot be built; the whole output is in $build/$library.log" >&2
        exit 1
    }
    touch "$build/$library.done"
done
