#!/bin/sh
# Stops the gateway and the servers of this host, which hand the primary role over, unless the package is only upgraded.
set -e

case "$1" in
0 | remove)
	if [ -d /run/systemd/system ]; then
		systemctl stop holdfast-gateway.service 'holdfast@*.service'
	fi
	;;
esac
