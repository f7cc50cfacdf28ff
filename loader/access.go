package loader

// deployerRights are what the user of a Loader needs on every node, but for CLUSTER SHARDS.
var deployerRights = []string{"+function|load", "+function|list", "+function|delete", "+function|stats", "+time", "+role", "+wait"}
