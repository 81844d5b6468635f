package installation_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// series returns the sum of the values of each metric of the pods of monitor, over all labels.
func (p *pipelines) series() (map[string]float64, error) {
	sums := map[string]float64{}
	for _, pod := range p.pods("monitor") {
		if err := p.addSeries(&pod, sums); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// addSeries adds the values of the metrics of a pod to sums.
func (r *region) addSeries(pod *corev1.Pod, sums map[string]float64) error {
	status, text, err := r.send(nil, http.MethodGet, "http://"+pod.Status.PodIP+":9090/metrics", http.Header{}, "")
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("the metrics of %s: %d, %w", pod.Name, status, err)
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] == "#" {
			continue
		}
		name, _, _ := strings.Cut(fields[0], "{")
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return fmt.Errorf("%s exports %q: %w", pod.Name, lines.Text(), err)
		}
		sums[name] += value
	}
	return nil
}

// awaitProbed waits until one pod of monitor has reached the API server of the only cluster, whose certificate it has verified.
func (p *pipelines) awaitProbed() {
	p.t.Helper()
	eventually.Before(p.ctx, p.t, "a probe of the cluster by monitor", func() error {
		sums, err := p.series()
		if err != nil {
			return err
		}
		end := time.Unix(int64(sums["monitor_cluster_certificate_end_seconds"]), 0)
		if sums["monitor_cluster_api_up"] != 1 || sums["monitor_cluster_info"] != 1 || end.Before(time.Now()) || sums["monitor_blind"] != 0 {
			return fmt.Errorf("monitor exports %v", sums)
		}
		return nil
	})
}

// awaitForgotten waits until monitor exports nothing of a deleted cluster.
func (p *pipelines) awaitForgotten() {
	p.t.Helper()
	eventually.Before(p.ctx, p.t, "the end of the probes of a deleted cluster", func() error {
		sums, err := p.series()
		if err != nil {
			return err
		}
		if sums["monitor_cluster_info"] != 0 || sums["monitor_clusters"] != 0 {
			return fmt.Errorf("monitor exports %v", sums)
		}
		return nil
	})
}
