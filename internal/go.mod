module github.com/hcpmesh/hcpmesh/internal

go 1.26.0
