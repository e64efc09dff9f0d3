"""The numbers of the commands and the flags of a frame. A number never changes its meaning."""

from enum import IntEnum, IntFlag


class Command(IntEnum):
    """One number per verb; never reused."""

    HELLO = 1
    PING = 2
    NOTICE = 3
    """Server to client, unasked: the server is about to stop, or leases were taken back."""
    AUTH = 4
    """The second frame of those who said in HELLO that they prove who they are."""

    ROUTES = 10
    REGISTER = 11
    WITHDRAW = 12
    TOPIC_NEWS = 13
    GROUP_ID = 14
    GROUP_FORGET = 15
    EPOCH = 16
    RESERVE = 17
    TOPICS_GONE = 63
    STANDINGS = 18
    MEMBER_JOIN = 19
    TOPIC_CREATE = 20
    TOPIC_LIST = 21
    TOPIC_SET = 22
    TOPIC_DELETE = 23
    LIMIT_SET = 24
    LIMIT_LIST = 25
    MEMBER_LEAD = 26
    IN_SYNC_CHANGE = 27
    IN_SYNC_LEAVE = 28
    MEMBER_FORGET = 29
    GROUP_CREATE = 30
    GROUP_LIST = 31
    GROUP_DELETE = 33
    GROUP_RESET = 34
    GROUP_SET = 35
    DEAD_OPEN = 36
    DEAD_RESEND = 37
    DEAD_DELETE = 38
    GROUP_REPLAY = 39

    PUBLISH = 40
    CONFIRM = 41
    PUBLISH_ONCE = 42
    HALF = 43
    HALF_END = 44
    CHECK = 45
    """Server to client, unasked: what became of this transaction?"""
    HALF_LIST = 46
    CHECKER = 47
    DETACHED_END = 48
    FIND = 49
    JOIN = 50
    PULL = 51
    ACK = 52
    LEAVE = 53
    RENEW = 54
    GROUP_KEYS = 55
    KEY_RESUME = 56
    READ = 60
    SEEK = 61
    READ_DELIVERIES = 65
    REPLAY_OPEN = 66
    GROUP_RETRY = 62
    LEDGER = 70
    STATUS = 71
    TOPIC_FIGURES = 72
    GROUP_FIGURES = 73
    CONSUMER_PAUSE = 74
    REFUSED_OPEN = 75
    REFUSED_RESEND = 76
    REFUSED_DELETE = 77

    DELAY_CHANGE = 80
    DELAY_FIND = 81
    DELAY_COUNT = 82
    DELAY_LEDGER = 83

    FOLLOW = 90
    REPLICATE = 91
    """Master to replica, unasked: bytes of a log."""
    REPLICATED = 92
    HANDOVER = 93
    BROKER_GROUP_DRAIN = 94
    BASE_OPEN = 95
    BASE_READ = 96

    PLACE = 100
    SLOTS_OPEN = 101

    USER_SET = 110
    USER_LIST = 111
    USER_REMOVE = 112
    GRANT_SET = 113
    TOKEN_CREATE = 114
    TOKEN_LIST = 115
    TOKEN_REVOKE = 116

    ROW_STATE = 120
    LEASES = 121
    WAITING = 122
    TRACE = 123
    DEAD_GROUPS = 124
    DEAD_RECALL = 125
    SESSIONS = 126
    SENDERS = 127
    DISCONNECT = 128
    DELAY_SHOW = 129
    FIGURES = 130
    SETTLE = 131
    EXTEND = 132
    DOC_LIST = 140
    DOC_GET = 141
    DOC_PUT = 142
    DOC_DELETE = 143
    FIGURES_PAGE = 144
    GROUP_TIMES = 145
    TOPIC_KEY_MAKE = 150
    TOPIC_KEY_FIND = 151
    TOPIC_KEY_LIST = 152
    KEY_ERASE = 153
    TOPIC_KEY_REWRAP = 154

    WHO_AM_I = 170
    TOKEN_END = 171
    ACCESS_KEY_SET = 175
    ACCESS_KEY_LIST = 176
    ACCESS_KEY_OPEN = 177


class Flag(IntFlag):
    """How to read a frame."""

    ANSWER = 1
    ERROR = 2
    ONE_WAY = 4
    """The sender wants no answer."""
