module github.com/hcpmesh/hcpmesh/cluster-service

go 1.26.0
