module github.com/hcpmesh/hcpmesh/monitor

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	pgregory.net/rapid v1.3.0
)

require go.uber.org/goleak v1.3.0 // indirect

replace (
	github.com/hcpmesh/hcpmesh/api => ../api
	github.com/hcpmesh/hcpmesh/internal => ../internal
)
