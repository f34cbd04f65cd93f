//go:build tools

// Package parts names the commands that scripts/parts builds, so that go.sum pins everything they need.
package parts

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/fuzzer"
	_ "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	_ "k8s.io/client-go/kubernetes/scheme"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/pkg/api/testing"
	_ "k8s.io/kubernetes/pkg/generated/openapi"
	_ "k8s.io/kubernetes/test/e2e"
	_ "sigs.k8s.io/randfill"
)
