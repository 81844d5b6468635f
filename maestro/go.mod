module github.com/hcpmesh/hcpmesh/maestro

go 1.26.0
