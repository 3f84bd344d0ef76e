package lockcoretest

// StartProxy starts a proxy that the test closes itself.
var StartProxy = startProxy
