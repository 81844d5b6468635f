module github.com/hcpmesh/hcpmesh/api

go 1.26.0
