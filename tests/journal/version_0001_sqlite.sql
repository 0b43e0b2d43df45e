CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE entries (
	n INTEGER NOT NULL,
	id VARCHAR(64) NOT NULL,
	at DATETIME NOT NULL,
	source VARCHAR(20) NOT NULL,
	sampled BOOLEAN NOT NULL,
	seen_twice BOOLEAN NOT NULL,
	model VARCHAR(200),
	engine VARCHAR(200),
	prompt VARCHAR(200),
	person VARCHAR(200),
	unscored TEXT,
	log_score DOUBLE,
	log_score_low DOUBLE,
	log_score_high DOUBLE,
	method VARCHAR(10),
	k INTEGER,
	preset VARCHAR(20),
	distribution VARCHAR(20),
	signature TEXT,
	headline VARCHAR(100),
	headline_value DOUBLE,
	confidence_low DOUBLE,
	confidence_high DOUBLE,
	confidence DOUBLE,
	uncertainty DOUBLE,
	uncertainty_low DOUBLE,
	uncertainty_high DOUBLE,
	numbers JSON,
	n_tokens INTEGER,
	truncated BOOLEAN,
	flags JSON,
	doubts JSON,
	chance DOUBLE,
	chance_low DOUBLE,
	chance_high DOUBLE,
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
	n INTEGER NOT NULL,
	entry INTEGER NOT NULL,
	reviewer VARCHAR(200) NOT NULL,
	correct BOOLEAN,
	at DATETIME NOT NULL,
	PRIMARY KEY (n),
	UNIQUE (entry, reviewer),
	FOREIGN KEY(entry) REFERENCES entries (n) ON DELETE CASCADE
);

CREATE TABLE calibrators (
	n INTEGER NOT NULL,
	checksum VARCHAR(64) NOT NULL,
	since DATETIME NOT NULL,
	file BLOB NOT NULL,
	PRIMARY KEY (n)
);

CREATE TABLE settings (
	n INTEGER NOT NULL,
	since DATETIME NOT NULL,
	salt BLOB NOT NULL,
	seed VARCHAR(200) NOT NULL,
	rate DOUBLE NOT NULL,
	PRIMARY KEY (n)
);

INSERT INTO alembic_version (version_num) VALUES ('0001') RETURNING version_num;

INSERT INTO entries (id, at, source, sampled, seen_twice, answer)
VALUES ('entry-1', '2026-01-02 03:04:05', 'proxy', true, false, 'Lima');
