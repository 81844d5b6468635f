module github.com/hcpmesh/hcpmesh/backend

go 1.26.0
