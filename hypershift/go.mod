module github.com/hcpmesh/hcpmesh/hypershift

go 1.26.0
