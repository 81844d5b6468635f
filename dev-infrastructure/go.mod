module github.com/hcpmesh/hcpmesh/dev-infrastructure

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	golang.org/x/sys v0.49.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/hcpmesh/hcpmesh/api v0.0.0
	github.com/stretchr/testify v1.11.1 // indirect
	github.com/tink-crypto/tink-go/v2 v2.6.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)

replace (
	github.com/hcpmesh/hcpmesh/api => ../api
	github.com/hcpmesh/hcpmesh/internal => ../internal
)
