#!/bin/sh
# Makes the user and the directories of the servers. It starts no server, nor has systemd start one.
set -e

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers holdfast.conf
elif ! getent passwd holdfast >/dev/null; then
	useradd --system --user-group --uid 7601 --home-dir /var/lib/holdfast --no-create-home --shell /usr/sbin/nologin holdfast
fi
if [ "$(id -u holdfast)" != 7601 ]; then
	echo "holdfast: the user holdfast has the number $(id -u holdfast) on this host, since 7601 was taken or it was there before." >&2
	echo "holdfast: give it the same number on all hosts of a volume before you start a server: the volume's files are its." >&2
fi
# Where there is no systemd-tmpfiles, or no /proc, without which it does nothing, as in the making of an image.
systemd-tmpfiles --create holdfast.conf 2>/dev/null || install -d -m 0750 -o holdfast -g holdfast /var/lib/holdfast
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# Servers of a volume are upgraded one at a time, see operate.md: when is for the operator to say.
	running=$(systemctl list-units --plain --no-legend --state=active 'holdfast@*.service' | cut -d ' ' -f 1)
	if [ -n "$running" ]; then
		echo "holdfast: still the version before runs in" $running ": restart one server of the volume at a time, the primary last." >&2
	fi
fi
