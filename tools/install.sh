#!/usr/bin/env bash
# Installs the named tools into .build, in these versions, unless they are there. Go compares their sources with its
# checksum database.
set -euo pipefail
cd "$(dirname "$0")/.."
for name; do
	case $name in
	actionlint) module=github.com/rhysd/actionlint version=v1.7.12 package=/cmd/actionlint ;;
	gotestsum) module=gotest.tools/gotestsum version=v1.13.0 package= ;;
	gremlins) module=github.com/go-gremlins/gremlins version=v0.6.0 package=/cmd/gremlins ;;
	staticcheck) module=honnef.co/go/tools version=v0.8.2 package=/cmd/staticcheck ;;
	*)
		echo "install.sh: $name is not a tool of this project"
		exit 1
		;;
	esac
	installed=$(go version -m ".build/$name" 2>/dev/null | awk '$1 == "mod" { print $2 "@" $3 }' || true)
	[ "$installed" = "$module@$version" ] || CGO_ENABLED=0 GOFLAGS=-trimpath GOBIN=$PWD/.build go install "$module$package@$version"
done
