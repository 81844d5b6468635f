module github.com/hcpmesh/hcpmesh/dev-infrastructure

go 1.26.0
