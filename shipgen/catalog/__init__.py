"""What is known about the logs of Ray: files, formats, environment. Data first, code second."""
