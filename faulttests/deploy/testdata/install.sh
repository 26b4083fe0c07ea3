#!/bin/sh
# Installs a package, upgrades to it and removes it in a copy of this machine's files that vanishes with the mounts of this process,
# and prints what each step has done. Run it by unshare -m.
#
#	install.sh DIR PACKAGE INSTALL UPGRADE REMOVE
#
# The copy takes itself for a machine that systemd runs, whose systemctl only writes down what it is told.
set -e
dir=$1 package=$2 install=$3 upgrade=$4 remove=$5

mount -t tmpfs tmpfs "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
mount --rbind /dev "$dir/root/dev"
mount --rbind /proc "$dir/root/proc"
cp "$package" "$dir/root/package"
rm -f "$dir/root/usr/bin/systemctl"
cat >"$dir/root/usr/bin/systemctl" <<'FAKE'
#!/bin/sh
echo "$@" >>/told
[ "$1" != list-units ] || [ ! -e /runs ] || echo "holdfast@1.service loaded active running Holdfast server 1"
FAKE
chmod 755 "$dir/root/usr/bin/systemctl"
mkdir -p "$dir/root/run/systemd/system"

# in_copy runs a command, and prints what systemd was told meanwhile.
in_copy() {
	rm -f "$dir/root/told"
	chroot "$dir/root" sh -c "$1" >"$dir/out" 2>&1 || { cat "$dir/out" && exit 1; }
	grep '^holdfast: ' "$dir/out" || true
	sort -u "$dir/root/told" 2>/dev/null | sed 's/^/systemctl /'
}

echo "== install"
in_copy "$install"
chroot "$dir/root" sh -c '
	id -u holdfast
	stat -c "%n %U:%G %a" /var/lib/holdfast /etc/holdfast
	find /etc/systemd /lib/systemd -name "holdfast*" -type l
	man -w holdfast-run
	holdfast version'
echo "== upgrade"
touch "$dir/root/runs"
in_copy "$upgrade"
echo "== remove"
in_copy "$remove"
chroot "$dir/root" sh -c '
	id -u holdfast
	ls -d /var/lib/holdfast
	! command -v holdfast'
