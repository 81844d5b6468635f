module github.com/hcpmesh/hcpmesh/tooling/hcpctl

go 1.26.0
