package egress

import (
	"io"
	"net"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// Ends of a tunnel, as in the label of the metric.
const (
	endClosed   = string(relay.EndClosed)
	endIdle     = string(relay.EndIdle)
	endLifetime = string(relay.EndLifetime)
	endBytes    = string(relay.EndBytes)
	endShutdown = "shutdown"
)

// tunnel confirms the CONNECT and copies in both directions until both streams have ended, a limit is reached, or the server closes.
func (s *Server) tunnel(client, target string, downstream, upstream net.Conn) {
	result := relay.Result{End: relay.EndClosed}
	if _, err := io.WriteString(downstream, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		result = s.tunnels.Run(s.closing, downstream, upstream)
	}
	end, count := string(result.End), result.Sent+result.Received
	if result.End == relay.EndCanceled {
		end = endShutdown
	}
	s.metrics.ended.WithLabelValues(end).Inc()
	s.metrics.bytes.Add(float64(count))
	s.options.Log.Debug("egress tunnel ended", logkey.ControlPlane, client, logkey.Target, clip(target), logkey.Reason, end, logkey.Count, count)
}
