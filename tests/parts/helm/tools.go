//go:build tools

// Package helm names the command that scripts/parts builds, so that go.sum pins everything it needs.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
