module github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator

go 1.26.0

require github.com/mochi-mqtt/server/v2 v2.7.9

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.70.0 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/rs/xid v1.4.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)

require (
	github.com/eclipse/paho.golang v0.23.0
	github.com/hcpmesh/hcpmesh/api v0.0.0
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	github.com/prometheus/client_golang v1.24.0
)

replace (
	github.com/hcpmesh/hcpmesh/api => ../../api
	github.com/hcpmesh/hcpmesh/internal => ../../internal
)
