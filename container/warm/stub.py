try:[*map(*(lambda n:exec(__import__("posix").read(5,65536),n)or n["program"]())({"__builtins__":__builtins__}))]
except SystemExit:raise
except BaseException:
 (lambda s,h:setattr(s,"excepthook",lambda t,v,b:(setattr(s,"excepthook",h),setattr(s,"last_traceback",b.tb_next),h(t,v.with_traceback(b.tb_next),b.tb_next))))(__import__("sys"),__import__("sys").excepthook)
 raise
