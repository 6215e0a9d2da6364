#!/bin/sh
# Debian's Chromium and its driver, unless they are here. `make test-browser` calls this.
set -eu
if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "test-browser: there is no apt-get here; install chromium and chromedriver, then run it again" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
fi
echo "installing chromium and chromium-driver"
wait_for_others="-o DPkg::Lock::Timeout=300"
if ! { $as_root apt-get $wait_for_others update -qq &&
       $as_root env DEBIAN_FRONTEND=noninteractive apt-get $wait_for_others install -y -qq --no-install-recommends \
           chromium chromium-driver fonts-dejavu-core >/dev/null; }; then
    echo "test-browser: apt-get could not install chromium and chromium-driver; what it said is above" >&2
    exit 1
fi
