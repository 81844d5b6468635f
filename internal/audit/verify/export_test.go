package verify

// LimitRead sets the number of bytes in which one check verifies lines.
func (e *Ends) LimitRead(most int64) { e.maxRead = most }
