package clusterservice

import "github.com/hcpmesh/hcpmesh/internal/apierror"

// EachPage reads a list of Cluster Service's to its end: list gets the page of a token, which is empty for the first, and take
// what is on it. It ends with the first error; one of list's is turned into an *apierror.Error.
func EachPage[P interface{ GetNextPageToken() string }](list func(token string) (P, error), take func(P) error) error {
	token := ""
	for {
		page, err := list(token)
		if err != nil {
			return apierror.FromGRPC(err)
		}
		if err := take(page); err != nil {
			return err
		}
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}
