package conn

import "time"

// Retire takes the current connection out of use if it was made until a time. The next call makes another connection.
func (l *Line) Retire(end time.Duration) {
	l.cancelDials(end)
	if p := l.current.Load(); p != nil && p.made <= end {
		l.retire(p)
	}
}

// cancelDials cancels the dials that began until a time, as they may lead to another server. staleUntil makes
// finishDial ignore a dial that has just succeeded.
func (l *Line) cancelDials(end time.Duration) {
	l.mu.Lock()
	l.staleUntil = max(l.staleUntil, end)
	l.mu.Unlock()
	l.dials.cancelUntil(end)
}

// IsElsewhere reports whether a connection does not lead to an address.
func (l *Line) IsElsewhere(addr string) bool { return len(l.pipesExcept(addr)) > 0 }

// MoveTo ends the connections that do not lead to an address. Late answers of another server do not count.
func (l *Line) MoveTo(addr string) {
	l.cancelDials(l.Now())
	for _, p := range l.pipesExcept(addr) {
		p.end(errMoved)
	}
}

// pipesExcept returns the pipes that lead elsewhere and have not ended.
func (l *Line) pipesExcept(addr string) (pipes []*pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range []*pipe{l.current.Load(), l.former} {
		if p != nil && p.Addr != addr {
			pipes = append(pipes, p)
		}
	}
	return pipes
}
