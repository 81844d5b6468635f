module github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator

go 1.26.0

require github.com/mochi-mqtt/server/v2 v2.7.9

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.66.1 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	github.com/rs/xid v1.4.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/sys v0.38.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

require (
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	github.com/prometheus/client_golang v1.23.2
)

replace (
	github.com/hcpmesh/hcpmesh/api => ../../api
	github.com/hcpmesh/hcpmesh/internal => ../../internal
)
