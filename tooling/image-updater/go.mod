module github.com/hcpmesh/hcpmesh/tooling/image-updater

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/go-containerregistry v0.21.6
	github.com/hcpmesh/hcpmesh/tooling/configure v0.0.0
	github.com/hcpmesh/hcpmesh/tooling/images v0.0.0
	github.com/hcpmesh/hcpmesh/tooling/registry v0.0.0
	github.com/prometheus/client_golang v1.24.0
	go.yaml.in/yaml/v3 v3.0.4
)

require (
	cel.dev/expr v0.24.0 // indirect
	github.com/antlr4-go/antlr/v4 v4.13.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/docker/cli v29.4.3+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.3 // indirect
	github.com/google/cel-go v0.26.1 // indirect
	github.com/hcpmesh/hcpmesh/internal v0.0.0 // indirect
	github.com/klauspost/compress v1.19.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.70.0 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.2 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	github.com/stoewer/go-strcase v1.2.0 // indirect
	golang.org/x/exp v0.0.0-20230515195305-f3d0a9c9a5cc // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20251029180050-ab9386a59fda // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251029180050-ab9386a59fda // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)

replace (
	github.com/hcpmesh/hcpmesh/api => ../../api
	github.com/hcpmesh/hcpmesh/internal => ../../internal
	github.com/hcpmesh/hcpmesh/tooling/configure => ../configure
	github.com/hcpmesh/hcpmesh/tooling/images => ../images
	github.com/hcpmesh/hcpmesh/tooling/registry => ../registry
	github.com/hcpmesh/hcpmesh/tooling/supplychain => ../supplychain
)
