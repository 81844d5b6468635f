module github.com/hcpmesh/hcpmesh/test

go 1.26.0
