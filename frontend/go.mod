module github.com/hcpmesh/hcpmesh/frontend

go 1.26.0
