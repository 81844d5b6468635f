package fleet

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// insideObservation returns the report of a management cluster's prober as clients get it; nil without a report.
func insideObservation(report *hostedreport.InsideReport) *csv1.InsideObservation {
	if report == nil {
		return nil
	}
	observation := &csv1.InsideObservation{State: string(report.State), Since: timestamppb.New(report.Since), Check: report.Check, Outcome: report.Outcome,
		Detail: report.Detail, ObservedTime: timestamppb.New(report.Observed)}
	if !report.CertificateEnd.IsZero() {
		observation.CertificateEndTime = timestamppb.New(report.CertificateEnd)
	}
	return observation
}
