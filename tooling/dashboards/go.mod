module github.com/hcpmesh/hcpmesh/tooling/dashboards

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/grafana/grafana-foundation-sdk/go v0.0.12
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	github.com/hcpmesh/hcpmesh/tooling/alerts v0.0.0
	github.com/prometheus/client_golang v1.24.0
	github.com/prometheus/common v0.70.0
	golang.org/x/sync v0.22.0
)

require (
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/image v0.36.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)

replace (
	github.com/hcpmesh/hcpmesh/api => ../../api
	github.com/hcpmesh/hcpmesh/internal => ../../internal
	github.com/hcpmesh/hcpmesh/tooling/alerts => ../alerts
)
