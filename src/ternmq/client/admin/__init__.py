"""`mq.admin`: topics, groups, servers, delayed messages, replays."""
