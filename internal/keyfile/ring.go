package keyfile

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
)

// Ring has the IDs of the enabled keys that a process has read from a keyset. IDs are not secret.
type Ring struct {
	Primary uint32
	IDs     []uint32
}

// RingOf returns the IDs of the enabled keys of a keyset.
func RingOf(handle *keyset.Handle) Ring {
	info := handle.KeysetInfo()
	ring := Ring{Primary: info.GetPrimaryKeyId()}
	for _, key := range info.GetKeyInfo() {
		if key.GetStatus() == tinkpb.KeyStatusType_ENABLED {
			ring.IDs = append(ring.IDs, key.GetKeyId())
		}
	}
	slices.Sort(ring.IDs)
	return ring
}

// KeyMetric is the name of the metric of Collector. Its labels are KeysetLabel and KeyLabel.
const (
	KeyMetric   = "keyset_key_primary"
	KeysetLabel = "keyset"
	KeyLabel    = "key"
)

// Collector returns the metric of the keys that the process has read from a keyset. flag is the flag with the file of the keyset, without
// dashes. `hcpctl keys rotate` reads the metric of all replicas before it uses a new key, or removes a former one.
func Collector(flag string, current func() Ring) prometheus.Collector {
	return &collector{flag: flag, current: current}
}

type collector struct {
	flag    string
	current func() Ring
}

func (c *collector) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "keyset_key_primary",
		Help: "The enabled keys of each keyset that the process has read, by the flag of the keyset and the ID of the key: 1 for the primary key, else 0."},
		[]string{KeysetLabel, KeyLabel})
}

// Describe implements prometheus.Collector. It describes nothing, so that a process can register collectors of several keysets.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	ring, gauge := c.current(), c.gauge()
	for _, id := range ring.IDs {
		value := 0.0
		if id == ring.Primary {
			value = 1
		}
		gauge.WithLabelValues(c.flag, strconv.FormatUint(uint64(id), 10)).Set(value)
	}
	gauge.Collect(metrics)
}
