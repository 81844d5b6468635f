module github.com/hcpmesh/hcpmesh/frontend

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/uuid v1.6.0
	github.com/hcpmesh/hcpmesh/api v0.0.0
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	github.com/prometheus/client_golang v1.23.2
	go.yaml.in/yaml/v3 v3.0.4
	pgregory.net/rapid v1.3.0
)

replace github.com/hcpmesh/hcpmesh/api => ../api

replace github.com/hcpmesh/hcpmesh/internal => ../internal
