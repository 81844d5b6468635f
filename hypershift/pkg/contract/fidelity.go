package contract

import (
	"fmt"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
)

// Fidelity states how real a hosted control plane is.
type Fidelity string

const (
	// FidelityProcess runs a real API server for each control plane.
	FidelityProcess Fidelity = "process"
	// FidelityStatus writes the status of objects and runs nothing.
	FidelityStatus Fidelity = "status"
)

// ParseFidelity returns the fidelity that text names. Any other text is an error.
func ParseFidelity(text string) (Fidelity, error) {
	switch fidelity := Fidelity(text); fidelity {
	case FidelityProcess, FidelityStatus:
		return fidelity, nil
	}
	return "", fmt.Errorf("unknown fidelity %q: supported values are %q and %q", text, FidelityProcess, FidelityStatus)
}

// FidelityOf returns the fidelity of a control plane, which was stored in its annotation when it was created.
func FidelityOf(hcp *hyperv1.HostedControlPlane) (Fidelity, error) {
	fidelity, err := ParseFidelity(hcp.Annotations[FidelityAnnotation])
	if err != nil {
		return "", fmt.Errorf("HostedControlPlane %s/%s: annotation %s: %w", hcp.Namespace, hcp.Name, FidelityAnnotation, err)
	}
	return fidelity, nil
}
