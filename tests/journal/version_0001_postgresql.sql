CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE entries (
	n BIGSERIAL NOT NULL,
	id VARCHAR(64) NOT NULL,
	at TIMESTAMP WITHOUT TIME ZONE NOT NULL,
	source VARCHAR(20) NOT NULL,
	sampled BOOLEAN NOT NULL,
	seen_twice BOOLEAN NOT NULL,
	model VARCHAR(200),
	engine VARCHAR(200),
	prompt VARCHAR(200),
	person VARCHAR(200),
	unscored TEXT,
	log_score DOUBLE PRECISION,
	log_score_low DOUBLE PRECISION,
	log_score_high DOUBLE PRECISION,
	method VARCHAR(10),
	k INTEGER,
	preset VARCHAR(20),
	distribution VARCHAR(20),
	signature TEXT,
	headline VARCHAR(100),
	headline_value DOUBLE PRECISION,
	confidence_low DOUBLE PRECISION,
	confidence_high DOUBLE PRECISION,
	confidence DOUBLE PRECISION,
	uncertainty DOUBLE PRECISION,
	uncertainty_low DOUBLE PRECISION,
	uncertainty_high DOUBLE PRECISION,
	numbers JSON,
	n_tokens INTEGER,
	truncated BOOLEAN,
	flags JSON,
	doubts JSON,
	chance DOUBLE PRECISION,
	chance_low DOUBLE PRECISION,
	chance_high DOUBLE PRECISION,
	decision VARCHAR(20),
	reason VARCHAR(40),
	calibrator VARCHAR(64),
	question TEXT,
	answer TEXT,
	PRIMARY KEY (n),
	UNIQUE (id)
);

CREATE INDEX entries_at ON entries (at);

CREATE INDEX entries_person ON entries (person) WHERE person IS NOT NULL;

CREATE INDEX entries_sampled ON entries (n) WHERE sampled;

CREATE TABLE labels (
	n BIGSERIAL NOT NULL,
	entry BIGINT NOT NULL,
	reviewer VARCHAR(200) NOT NULL,
	correct BOOLEAN,
	at TIMESTAMP WITHOUT TIME ZONE NOT NULL,
	PRIMARY KEY (n),
	UNIQUE (entry, reviewer),
	FOREIGN KEY(entry) REFERENCES entries (n) ON DELETE CASCADE
);

CREATE TABLE calibrators (
	n BIGSERIAL NOT NULL,
	checksum VARCHAR(64) NOT NULL,
	since TIMESTAMP WITHOUT TIME ZONE NOT NULL,
	file BYTEA NOT NULL,
	PRIMARY KEY (n)
);

CREATE TABLE settings (
	n BIGSERIAL NOT NULL,
	since TIMESTAMP WITHOUT TIME ZONE NOT NULL,
	salt BYTEA NOT NULL,
	seed VARCHAR(200) NOT NULL,
	rate DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (n)
);

INSERT INTO alembic_version (version_num) VALUES ('0001') RETURNING alembic_version.version_num;

INSERT INTO entries (id, at, source, sampled, seen_twice, answer)
VALUES ('entry-1', '2026-01-02 03:04:05', 'proxy', true, false, 'Lima');
