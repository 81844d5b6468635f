package clusterservice

import "github.com/hcpmesh/hcpmesh/internal/apierror"

// EachPage reads a paged list to its end. It calls list with the token of each page, which is empty for the first, and
// then handle with the page. It stops at the first error; it converts an error of list to an *apierror.Error.
func EachPage[P interface{ GetNextPageToken() string }](list func(token string) (P, error), handle func(P) error) error {
	token := ""
	for {
		page, err := list(token)
		if err != nil {
			return apierror.FromGRPC(err)
		}
		if err := handle(page); err != nil {
			return err
		}
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}
