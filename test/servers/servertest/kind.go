package servertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
)

// Kind is a server that this package can start. Its name is what the program
// test/servers and the environment variables are told.
type Kind string

// The kinds of servers.
const (
	// Postgres is the PostgreSQL of the distribution: 15 on Debian 12.
	Postgres Kind = "postgres"
	// Postgres18 is PostgreSQL 18, from an npm package.
	Postgres18 Kind = "postgres18"
	// MariaDB is the MariaDB of the distribution: 10.11 on Debian 12.
	MariaDB Kind = "mariadb"
	// MySQL is MySQL 9 of Debian's unstable suite; no test asks for it unless it
	// is told to, see "make test-mysql".
	MySQL Kind = "mysql"
	// Redis is the Redis of the distribution: 7.0 on Debian 12.
	Redis Kind = "redis"
	// OpenSearch is OpenSearch 2.19, from Maven packages. It needs Java 17.
	OpenSearch Kind = "opensearch"
)

// recipe is all that differs between two kinds.
type recipe struct {
	// what is the server in words.
	what string
	// extra: only those who name it need it.
	extra  bool
	source source
	// dialect is how clients speak to it.
	dialect
	// stop is the signal after which the server ends in good order.
	stop syscall.Signal
	// create fills the data directory and writes what configuration there is.
	create func(ctx context.Context, s *Server) error
	// arguments are those of source.programs[0], which is the server.
	arguments func(s *Server) []string
	// url is the address as clients of its dialect write it.
	url func(s *Server) string
}

// dialect is what can be asked of a server over its address, ours or not.
type dialect struct {
	// identify asks the server who it is, by a query that works only if it
	// serves queries.
	identify func(ctx context.Context, address string) (identity, error)
	// database makes an empty database and returns its address and how to
	// remove it.
	database func(ctx context.Context, address string) (string, func(context.Context) error, error)
}

// identity is what a server says of itself.
type identity struct {
	data    string // the data directory
	pid     int    // 0 if it does not tell
	version string
}

// recipes is where a new kind is entered.
func recipes() map[Kind]recipe {
	return map[Kind]recipe{
		Postgres:   postgres("PostgreSQL of the distribution", debianPostgres()),
		Postgres18: postgres("PostgreSQL 18", npmPostgres()),
		MariaDB:    mariadb(),
		MySQL:      mysql9(),
		Redis:      redis(),
		OpenSearch: opensearch(),
	}
}

// All lists them by name.
func All() []Kind { return slices.Sorted(maps.Keys(recipes())) }

// Kinds lists those that "make test" needs.
func Kinds() []Kind { return slices.DeleteFunc(All(), func(k Kind) bool { return k.recipe().extra }) }

// ParseKind finds the kind of that name.
func ParseKind(name string) (Kind, error) {
	if _, ok := recipes()[Kind(name)]; ok {
		return Kind(name), nil
	}
	return "", fmt.Errorf("no server is called %q: there are %v", name, All())
}

// Env is the environment variable that holds an address of this kind.
func (k Kind) Env() string { return "SEMEL_TEST_" + strings.ToUpper(string(k)) }

func (k Kind) recipe() recipe {
	r, ok := recipes()[k]
	if !ok {
		panic("no such kind of server: " + string(k)) // a typing error in a test
	}
	return r
}
